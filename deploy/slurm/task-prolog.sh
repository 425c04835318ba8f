#!/bin/bash
# TaskProlog of Slurm, run as the user of the job before each task. Slurm reads what it prints, and sets it in the environment
# of the task: the spool that prolog.sh made. Ranks then record there, and start no agent. A job still needs RANKSCOPE=1 to
# record. A job that sets a spool or a collector itself keeps it.
spool=${RANKSCOPE_SPOOLS:-/var/spool/rankscope-jobs}/$SLURM_JOB_ID
if [ -d "$spool" ] && [ -z "${RANKSCOPE_SPOOL:-}${RANKSCOPE_COLLECTOR:-}" ]; then
    echo "export RANKSCOPE_SPOOL=$spool"
fi
