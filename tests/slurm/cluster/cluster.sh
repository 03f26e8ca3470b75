#!/usr/bin/env bash
# A Slurm cluster of simulated nodes on this machine, for tests and for trying things out. Needs root.
#   cluster.sh up N [--while PID]            starts N nodes, n1 to nN, and a login node `ctl` with slurmctld; ends with PID
#   cluster.sh down                          ends all of it
#   cluster.sh on [--user] NODE COMMAND...   runs COMMAND on a node, in this directory; --user: not as root
#   cluster.sh node kill|up NODE             power loss: no process ends well, no connection is closed; boot
#   cluster.sh net rate 1gbit|off            the speed of every node's link, in both directions
#   cluster.sh net delay 200us|off           what a packet takes longer to get to another node (netem, if the kernel has it)
#   cluster.sh net cut|join NODE             pulls a node's cable; puts it back
#   cluster.sh net bytes                     NODE SENT RECEIVED, since the node was started
#   cluster.sh can                           whether it would work here: ends with 77 and the reason if not
# A node has its own network, PID, mount, IPC and UTS namespace, with a slurmd and a munged; files are shared. A bridge in
# one more network namespace joins them. Everything runs below one process, and ends with it. Nothing of the machine
# changes outside these namespaces and the directory RIPSTOP_CLUSTER (default: /tmp/ripstop-cluster).
# RIPSTOP_CLUSTER_CPUS (default 8): processors that Slurm counts on each node, whatever the machine has.
# RIPSTOP_CLUSTER_TIMEOUT (default 10; of most sites 300): seconds without an answer after which Slurm calls a node down.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${RIPSTOP_CLUSTER:-/tmp/ripstop-cluster}
subnet=10.77.0
user_id=6001

die() {
  echo "cluster.sh: $*" >&2
  exit 1
}
usage() {
  sed -n '2,11s/^# \?//p' "${BASH_SOURCE[0]}" >&2
  exit 64
}

# pid_of NAME: the process that a node, or the switch, ends with, if it lives and is the one that was started.
pid_of() {
  local pid started stat
  read -r pid started 2>/dev/null <"$home/$1/init" || return 1
  read -r -a stat 2>/dev/null <"/proc/$pid/stat" || return 1
  [[ ${stat[21]} == "$started" ]] && echo "$pid"
}
in_switch() { nsenter -t "$(pid_of switch)" --net "$@"; }
address() { if [[ $1 == ctl ]]; then echo $subnet.254; else echo "$subnet.${1#n}"; fi; }
nodes() { seq -f 'n%g' 1 "$(<"$home/nodes")"; }
known() { [[ -d $home/$1/spool ]] || die "no node '$1'; there are: ctl $(nodes | paste -sd' ')"; }

# Ends the process of NAME, and with it all that run below it.
end() {
  local pid
  pid=$(pid_of "$1") || return 0
  kill -KILL "$pid" 2>/dev/null || true
  for ((i = 0; i < 200; i++)); do
    [[ -d /proc/$pid ]] || return 0
    sleep 0.05
  done
  die "$1 does not end"
}

# missing: prints in one line why the cluster cannot run here; nothing if it can.
missing() {
  local tool
  if [[ $EUID -ne 0 ]]; then
    echo "needs root" && return
  fi
  for tool in slurmctld slurmd srun sbatch munged; do
    command -v $tool >/dev/null || { echo "no $tool (./bootstrap.sh deps --slurm installs it)" && return; }
  done
  for tool in ip tc nsenter unshare setpriv; do
    command -v $tool >/dev/null || { echo "no $tool" && return; }
  done
  unshare --net --uts --ipc --mount --pid --fork --kill-child=KILL bash -c '
    mount -t proc proc /proc && mount -t tmpfs tmpfs /dev/shm && ip link add switch type bridge &&
    ip link add p type veth peer name q' >/dev/null 2>&1 || echo "namespaces are not allowed here"
}

# boot NAME: a machine with its cable.
boot() {
  local name=$1 pid
  rm -rf "${home:?}/$name"/{init,spool} # a socket of a lost step would break the same step after a requeue
  mkdir -p "$home/$name/spool"
  # The switch's PID namespace is entered first, so that its end is the end of all.
  setsid nsenter -t "$(pid_of switch)" --pid --net \
    unshare --net --uts --ipc --mount --pid --fork --kill-child=KILL \
    bash "$here/init.sh" "$name" "$home" </dev/null >"$home/$name/log" 2>&1 &
  for ((i = 0; i < 200; i++)); do
    if pid=$(pid_of "$name"); then break; fi
    sleep 0.05
  done
  [[ -n $pid ]] || die "$name does not start: $(tail -n 3 "$home/$name/log")"
  in_switch ip link add "p-$name" type veth peer name eth0 netns "$pid"
  # Large frames, as in clusters: what counters show beyond the payload is then 1 % or so, not 7 %.
  in_switch ip link set "p-$name" mtu 9000 master bridge up
  nsenter -t "$pid" --net ip addr add "$(address "$name")/24" dev eth0
  nsenter -t "$pid" --net ip link set eth0 mtu 9000 up
  if [[ -s $home/rate ]]; then shape "$name"; fi
}

# The files that stand on every node in place of the machine's.
write_files() {
  local count=$1 cpus=${RIPSTOP_CLUSTER_CPUS:-8} node conf
  mkdir -p "$home"/{etc,local,switch,ctl/{state,spool},user}
  # munged wants a path that only root can change.
  chmod 755 "$home" "$home"/{etc,ctl,switch}
  chown $user_id:$user_id "$home/user"
  head -c 128 /dev/urandom >"$home/munge.key"
  chmod 400 "$home/munge.key"
  {
    echo "127.0.0.1 localhost"
    for node in ctl $(seq -f 'n%g' 1 "$count"); do echo "$(address "$node") $node"; done
  } >"$home/etc/hosts"
  { cat /etc/passwd && echo "somebody:x:$user_id:$user_id::$home/user:/bin/bash"; } >"$home/etc/passwd"
  { cat /etc/group && echo "somebody:x:$user_id:"; } >"$home/etc/group"
  conf=$(<"$here/slurm.conf.in")
  conf=${conf//@HOME@/$home} conf=${conf//@CONTROLLER@/$(address ctl)} conf=${conf//@CPUS@/$cpus}
  conf=${conf//@TIMEOUT@/${RIPSTOP_CLUSTER_TIMEOUT:-10}}
  for node in $(seq -f 'n%g' 1 "$count"); do conf+=$'\n'"NodeName=$node NodeAddr=$(address "$node")"; done
  for node in "PartitionName=DEFAULT Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:20:00 OverSubscribe=NO State=UP" \
    "PartitionName=main Default=YES PriorityTier=5 PreemptMode=OFF" \
    "PartitionName=scavenge PriorityTier=1 PreemptMode=REQUEUE GraceTime=30" \
    "PartitionName=spare PriorityTier=1 PreemptMode=CANCEL GraceTime=30" \
    "PartitionName=urgent PriorityTier=9 PreemptMode=OFF"; do conf+=$'\n'$node; done
  echo "$conf" >"$home/etc/slurm.conf"
  # With other ways to meet, MPI_Init crashes at random in Slurm 22.05 (2 of 150 starts of 4 ranks; this one: 0 of 1180).
  echo "PMIxCollFence=ring" >"$home/etc/mpi.conf"
  # Before 24.05 nobody asks for control groups here, and the word is not known.
  case $(slurmd -V) in
    *' 22.'* | *' 23.'*) : >"$home/etc/cgroup.conf" ;;
    *) echo "CgroupPlugin=disabled" >"$home/etc/cgroup.conf" ;;
  esac
  cp "$here/openmpi-mca-params.conf" "$home/etc/"
  echo "$count" >"$home/nodes"
}

up() {
  local count=${1:-} owner='' reason node idle
  [[ $count =~ ^[1-9][0-9]?$ && $count -le 64 ]] || usage
  shift
  if [[ ${1:-} == --while ]]; then owner=${2:-} && [[ -d /proc/$owner ]] || usage; fi
  reason=$(missing)
  [[ -z $reason ]] || die "$reason"
  if pid_of switch >/dev/null; then die "a cluster runs in $home; cluster.sh down ends it"; fi
  if [[ -e $home && ! -e $home/munge.key && -n $(ls -A "$home") ]]; then die "$home is not empty and no cluster's"; fi
  clear_home
  write_files "$count"
  setsid unshare --net --mount --pid --fork --kill-child=KILL \
    bash "$here/init.sh" switch "$home" "$owner" </dev/null >"$home/switch/log" 2>&1 &
  for ((i = 0; i < 200; i++)); do
    if pid_of switch >/dev/null; then break; fi
    sleep 0.05
  done
  pid_of switch >/dev/null || die "the switch does not start: $(tail -n 3 "$home/switch/log")"
  for node in ctl $(nodes); do boot "$node"; done
  for ((i = 0; i < 300; i++)); do
    idle=$(on ctl sinfo -h -N -p main -o '%N %t' 2>/dev/null | grep -c ' idle$') || true
    if [[ $idle == "$count" ]]; then
      echo "cluster.sh: $count nodes are idle; files in $home"
      return
    fi
    sleep 0.2
  done
  on ctl sinfo -N -l >&2 || true
  tail -n 5 "$home"/*/*.log >&2 || true
  end switch
  die "the nodes are not idle after a minute; logs are in $home"
}

# Removes what a cluster left here, and nothing else. The files of `user` are those of jobs.
clear_home() { rm -rf "${home:?}"/{etc,local,switch,ctl,user,n[0-9]*,munge.key,nodes,rate,delay}; }

on() {
  local as=() node pid
  if [[ ${1:-} == --user ]]; then
    as=(setpriv "--reuid=$user_id" "--regid=$user_id" --clear-groups env "HOME=$home/user" USER=somebody LOGNAME=somebody)
    shift
  fi
  node=${1:-}
  [[ $# -ge 2 ]] || usage
  shift
  known "$node"
  pid=$(pid_of "$node") || die "$node is down"
  # shellcheck disable=SC2016 # expanded on the node
  # --root: else, in a chroot, a new mount namespace would begin outside of it.
  nsenter -t "$pid" --net --uts --ipc --mount --pid --root --wd ${as[@]+"${as[@]}"} \
    env "SLURM_CONF=$home/etc/slurm.conf" "TMPDIR=$home/local" bash -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}

# shape NODE: rate and delay of its link. On the node's side: what it sends; on the switch's: what it receives.
shape() {
  local rate delay pid
  rate=$(cat "$home/rate" 2>/dev/null) || true
  delay=$(cat "$home/delay" 2>/dev/null) || true
  pid=$(pid_of "$1") || return 0
  in_switch tc qdisc del dev "p-$1" root 2>/dev/null || true
  nsenter -t "$pid" --net tc qdisc del dev eth0 root 2>/dev/null || true
  if [[ -n $rate ]]; then
    nsenter -t "$pid" --net tc qdisc add dev eth0 root handle 1: tbf rate "$rate" burst 64kb latency 50ms
    in_switch tc qdisc add dev "p-$1" root handle 1: tbf rate "$rate" burst 64kb latency 50ms
  fi
  if [[ -n $delay ]]; then
    if [[ -n $rate ]]; then
      in_switch tc qdisc add dev "p-$1" parent 1:1 handle 2: netem delay "$delay" limit 20000
    else
      in_switch tc qdisc add dev "p-$1" root handle 2: netem delay "$delay" limit 20000
    fi
  fi
}

net() {
  local verb=${1:-} what=${2:-} node port
  case $verb in
    rate | delay)
      [[ -n $what ]] || usage
      if [[ $what == off ]]; then what=; fi
      if [[ $verb == delay && -n $what ]]; then
        in_switch tc qdisc add dev lo root netem delay 1us 2>/dev/null || die "this kernel has no netem: no delay"
        in_switch tc qdisc del dev lo root
      fi
      echo "$what" >"$home/$verb"
      for node in $(nodes); do shape "$node"; done
      ;;
    cut | join)
      known "$what"
      if [[ $verb == cut ]]; then in_switch ip link set "p-$what" down; else in_switch ip link set "p-$what" up; fi
      ;;
    bytes)
      # /sys shows the network namespace that it was mounted in, /proc that of the reader.
      in_switch cat /proc/self/net/dev | while read -r port received _ _ _ _ _ _ _ sent _; do
        if [[ $port == p-n* ]]; then
          node=${port#p-}
          echo "${node%:} $received $sent"
        fi
      done
      ;;
    *) usage ;;
  esac
}

node() {
  known "${2:-}"
  case $1 in
    kill)
      in_switch ip link set "p-$2" down 2>/dev/null || true
      end "$2"
      in_switch ip link del "p-$2" 2>/dev/null || true # else the kernel does it, some time later
      rm -f "$home/$2/init"
      ;;
    up)
      if pid_of "$2" >/dev/null; then die "$2 is up"; fi
      boot "$2"
      ;;
    *) usage ;;
  esac
}

verb=${1:-}
[[ $# -eq 0 ]] || shift
case $verb in
  can)
    reason=$(missing)
    if [[ -n $reason ]]; then
      echo "no Slurm cluster here: $reason"
      exit 77
    fi
    ;;
  up) up "$@" ;;
  down)
    end switch
    clear_home
    rmdir "$home" 2>/dev/null || true
    ;;
  on) on "$@" ;;
  net) net "$@" ;;
  node) node "$@" ;;
  *) usage ;;
esac
