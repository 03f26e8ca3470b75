#!/usr/bin/env bash
# Settings of this site: the one file to edit. All job files of this folder source it once, on the first node of a job; the
# launcher hands its variables on to all ranks. For a shell:   source slurm/env.sh
# By default nothing is set. Remove the `#` from the lines that your site needs, and delete the others. The
# sections for networks are untested recommendations of the libraries' makers, with the reasons.
# `ripstop doctor` under srun measures MPI's links between ranks; with `--output` on GPUs NCCL's, too.

# ---- Which ripstop --------------------------------------------------------------------------------------------------
# export RIPSTOP_PROGRAM=$HOME/ripstop/build/cuda/ripstop

# ---- Modules (Environment Modules, Lmod) ----------------------------------------------------------------------------
# The compiler and the MPI that built ripstop. The first line is for sites whose batch shells lack `module`.
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
# Most builds of Open MPI speak only PMIx; MPICH and Intel MPI speak pmi2. `srun --mpi=list` shows the types that Slurm has. If
# MPI and Slurm do not fit, each process is alone in its MPI world: ripstop says so and ends with 78.
# export SLURM_MPI_TYPE=pmix
# For sites where srun cannot start this MPI: mpirun asks Slurm for the nodes.
# export RIPSTOP_LAUNCHER=mpirun
# Neighbouring processors for each rank, and memory near them. Check the result: threads of a rank must not share a core. The
# first line is for srun, the second for Open MPI's mpirun.
# export RIPSTOP_LAUNCHER_OPTIONS="--cpu-bind=cores --distribution=block:block"
# export RIPSTOP_LAUNCHER_OPTIONS="--map-by slot:PE=${SLURM_CPUS_PER_TASK:-1} --bind-to core"

# ---- InfiniBand (and RoCE) ------------------------------------------------------------------------------------------
# NCCL finds InfiniBand by itself, but first connects over a socket: name a network that reaches all nodes.
# export NCCL_SOCKET_IFNAME=ib0
# The adapters for data. Without this line NCCL also uses adapters for storage, if a node has any. `ibstat` lists adapters.
# export NCCL_IB_HCA=mlx5_0,mlx5_1
# The number of retries of a lost packet before the run ends: up to 7, for fabrics that drop packets under load.
# export NCCL_IB_RETRY_CNT=7
# MPI over UCX, on the same adapters. rc: reliable connections, whose memory grows with the ranks; dc is better for
# thousands of ranks. `ucx_info -d` lists transports and adapters.
# export OMPI_MCA_pml=ucx UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1 UCX_TLS=rc,sm,self
# RoCE: the entry of the address table for RoCE v2, often 3; `show_gids` lists the entries.
# export NCCL_IB_GID_INDEX=3 UCX_IB_GID_INDEX=3

# ---- Slingshot (HPE Cray EX) ----------------------------------------------------------------------------------------
# NCCL reaches Slingshot through a plugin, aws-ofi-nccl, over libfabric's provider cxi. Without it NCCL uses TCP, ten times
# slower: NCCL_DEBUG=INFO then shows "Using network Socket".
# module load aws-ofi-nccl
# export NCCL_SOCKET_IFNAME=hsn FI_PROVIDER=cxi
# Lets a rank connect to any adapter of another node.
# export NCCL_CROSS_NIC=1
# Lets libfabric watch freed memory without hooks in malloc, which can hang beside CUDA.
# export FI_MR_CACHE_MONITOR=userfaultfd
# The size of completion queues, for many ranks: a job hangs if a queue overflows.
# export FI_CXI_DEFAULT_CQ_SIZE=131072
# Leaves buffers of the host unregistered with the GPU.
# export FI_CXI_DISABLE_HOST_REGISTER=1
# Cray MPICH's own plugin for srun, and libfabric for Open MPI.
# export SLURM_MPI_TYPE=cray_shasta
# export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi

# ---- Ethernet -------------------------------------------------------------------------------------------------------
# A network that reaches all nodes. By default Open MPI and NCCL may try docker0 or a management network, and wait.
# export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0 NCCL_SOCKET_IFNAME=eth0
# Plain TCP, without a search for faster networks.
# export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp NCCL_IB_DISABLE=1
# Threads and sockets for each connection of NCCL, because one TCP stream does not fill 25 Gbit/s.
# export NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4

# ---- Any network ----------------------------------------------------------------------------------------------------
# Shows NCCL's choices in the log of the job, for the first runs at a site.
# export NCCL_DEBUG=INFO
# Threads of a rank; in a job with --cpus-per-task that is the default.
# export OMP_NUM_THREADS=8
