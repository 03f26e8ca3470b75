#!/usr/bin/env bash
# What this site needs before ripstop starts: the one file to edit. All job files of this folder read it, once, on the first
# node of a job; its variables reach all ranks through the launcher. You can read it, too:   source slurm/env.sh
# Nothing is set as it comes. Take the `#` from the lines that are yours, and remove the rest. The sections for networks
# have been run on no such network by us: they are what the makers of these libraries recommend, with the reasons.
# `ripstop doctor` under srun shows what a setting gives: the speed of the links between ranks.

# ---- Which ripstop --------------------------------------------------------------------------------------------------
# export RIPSTOP_PROGRAM=$HOME/ripstop/build/cuda/ripstop

# ---- Modules (Environment Modules, Lmod) ----------------------------------------------------------------------------
# The same compiler and MPI with which ripstop was built. The second line is for sites whose batch shells lack `module`.
# source /etc/profile.d/modules.sh
# module purge
# module load gcc openmpi hdf5
# module load cuda nccl cudnn
# After cmake --install build/cpu-release --prefix $HOME/.local:
# module use $HOME/.local/share/modulefiles && module load ripstop

# ---- Spack ----------------------------------------------------------------------------------------------------------
# source $HOME/spack/share/spack/setup-env.sh
# spack env activate ripstop

# ---- How srun starts MPI --------------------------------------------------------------------------------------------
# Open MPI speaks PMIx and nothing else in most builds; MPICH and Intel MPI speak pmi2. `srun --mpi=list` shows what Slurm
# has. If the two do not fit, each process is alone in its world, and ripstop says so and ends with 78.
# export SLURM_MPI_TYPE=pmix
# Where srun cannot start this MPI at all: mpirun, which asks Slurm for the nodes itself.
# export RIPSTOP_LAUNCHER=mpirun
# Processors for each rank next to each other, and memory near them. Try it: threads of one rank must not share a core.
# The first line is for srun, the second for mpirun of Open MPI.
# export RIPSTOP_LAUNCHER_OPTIONS="--cpu-bind=cores --distribution=block:block"
# export RIPSTOP_LAUNCHER_OPTIONS="--map-by slot:PE=${SLURM_CPUS_PER_TASK:-1} --bind-to core"

# ---- InfiniBand (and RoCE) ------------------------------------------------------------------------------------------
# NCCL finds InfiniBand by itself, and begins over a socket: name a network that reaches all nodes.
# export NCCL_SOCKET_IFNAME=ib0
# Only the adapters for data, if a node has others for storage, which NCCL would use too. `ibstat` lists them.
# export NCCL_IB_HCA=mlx5_0,mlx5_1
# How many times a lost packet is sent again before the run ends: more (up to 7) for fabrics that drop under load.
# export NCCL_IB_RETRY_CNT=7
# MPI over UCX, on the same adapters. rc: reliable connections, whose memory grows with the ranks; from some thousand ranks
# on, dc is better. `ucx_info -d` lists what there is.
# export OMPI_MCA_pml=ucx UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1 UCX_TLS=rc,sm,self
# RoCE: the entry of the address table that is RoCE v2; `show_gids` lists them. 3 is the most common.
# export NCCL_IB_GID_INDEX=3 UCX_IB_GID_INDEX=3

# ---- Slingshot (HPE Cray EX) ----------------------------------------------------------------------------------------
# NCCL reaches Slingshot through a plugin, aws-ofi-nccl, over libfabric's provider cxi. Without it NCCL uses TCP, ten times
# slower: NCCL_DEBUG=INFO then shows "Using network Socket".
# module load aws-ofi-nccl
# export NCCL_SOCKET_IFNAME=hsn FI_PROVIDER=cxi
# Ranks of a node reach those of another through any of its adapters.
# export NCCL_CROSS_NIC=1
# libfabric watches freed memory without hooks in malloc, which can hang beside CUDA.
# export FI_MR_CACHE_MONITOR=userfaultfd
# Completion queues large enough for many ranks: when they overflow, a job hangs.
# export FI_CXI_DEFAULT_CQ_SIZE=131072
# Buffers of the host need not be registered with the GPU.
# export FI_CXI_DISABLE_HOST_REGISTER=1
# Cray MPICH is started by its own plugin; Open MPI takes libfabric with these.
# export SLURM_MPI_TYPE=cray_shasta
# export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi

# ---- Ethernet -------------------------------------------------------------------------------------------------------
# One network that reaches all nodes. Left alone, Open MPI and NCCL may try docker0 or a management network, and wait.
# export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0 NCCL_SOCKET_IFNAME=eth0
# Plain TCP, without a search for faster networks that are not there.
# export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp NCCL_IB_DISABLE=1
# One TCP stream does not fill 25 Gbit/s and more: threads and sockets for each connection of NCCL.
# export NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4

# ---- Any network ----------------------------------------------------------------------------------------------------
# What NCCL chose, in the log of the job. Once, for a new site.
# export NCCL_DEBUG=INFO
# Threads of a rank, if not as many as --cpus-per-task.
# export OMP_NUM_THREADS=8
