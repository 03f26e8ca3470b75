#!/usr/bin/env bash
# The first process of a simulated machine, or of the switch: what runs there ends with it. cluster.sh starts it.
#   init.sh NAME HOME [OWNER]      ends when the process OWNER does
set -uo pipefail
name=$1 home=$2 owner=${3:-}

# /proc is still that of the machine outside, which knows this process by another number.
read -r -a stat </proc/self/stat
# Tells cluster.sh that this machine is there.
announce() {
  echo "${stat[0]} ${stat[21]}" >"$home/$name/init.new"
  mv "$home/$name/init.new" "$home/$name/init"
}
# A number that was given to another process is no owner.
started() {
  local of
  read -r -a of 2>/dev/null <"/proc/$1/stat" && echo "${of[21]}"
}

if [[ $name == switch ]]; then
  ip link set lo up
  ip link add bridge type bridge
  ip link set bridge up
  announce
  if [[ -z $owner ]]; then
    while :; do sleep 3600; done
  fi
  born=$(started "$owner")
  while [[ -n $born && $(started "$owner") == "$born" ]]; do sleep 1; done
  exit
fi

mount -t proc proc /proc
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
# Where nodes of a cluster have their own /tmp: Slurm's sockets, those of Open MPI, and TMPDIR.
mount -t tmpfs -o mode=1777 tmpfs "$home/local"
for file in hosts passwd group; do mount --bind "$home/etc/$file" "/etc/$file"; done
if [[ -d /etc/slurm ]]; then mount --bind "$home/etc" /etc/slurm; fi
settings=/etc/openmpi/openmpi-mca-params.conf
if [[ -e $settings ]]; then mount --bind "$home/etc/openmpi-mca-params.conf" $settings; fi
hostname "$name"
ip link set lo up
announce
until [[ -n $(ip -4 -o addr show dev eth0 2>/dev/null) ]]; do sleep 0.05; done

# The starter of this script may itself be a job.
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMIX_@}" "${!RIPSTOP_@}"
export SLURM_CONF=$home/etc/slurm.conf TMPDIR=$home/local
munged --force --foreground --num-threads=1 --key-file="$home/munge.key" --socket="$home/local/munge.socket" \
  --pid-file="$home/local/munge.pid" --log-file="$home/$name/munge.log" --seed-file="$home/local/munge.seed" &
until [[ -S $home/local/munge.socket ]]; do sleep 0.05; done
if [[ $name == ctl ]]; then
  slurmctld -D -f "$SLURM_CONF" &
else
  slurmd -D -N "$name" -f "$SLURM_CONF" &
fi
# A machine stays on when its daemons end. As the first process it also collects orphans.
while :; do
  sleep 3600 &
  wait $!
done
