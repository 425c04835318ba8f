#!/bin/bash
# Prolog of Slurm, run by slurmd as root on each node of a job: gives the job its own spool, and starts an agent for it as
# the user of the job, outside of the job's cgroup. docs/guides/slurm.md explains it.
#
#     slurm.conf    Prolog=/etc/slurm/prolog.d/*    PrologFlags=Alloc
#     agent.env     RANKSCOPE_COLLECTOR=https://collector.example:8719, RANKSCOPE_WRITE_TOKEN=...
#
# It always ends with status 0: a prolog that fails drains the node.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
settings=${RANKSCOPE_AGENT_ENV:-/etc/rankscope/agent.env}
spools=${RANKSCOPE_SPOOLS:-/var/spool/rankscope-jobs}
program=${RANKSCOPE_PROGRAM:-/opt/rankscope/bin/rankscope}
spool=$spools/$SLURM_JOB_ID
group=$(id --group "$SLURM_JOB_UID")

if ! install --directory --mode 0755 "$spools" ||
    ! install --directory --mode 0700 --owner "$SLURM_JOB_UID" --group "$group" "$spool"; then
    echo "rankscope prolog: no spool $spool: the ranks of job $SLURM_JOB_ID are not recorded" >&2
    exit 0
fi

# The agent ends when all ranks of an attempt have ended and are stored. The loop starts it again for the next attempt. An
# agent needs memory, so the first one starts when a rank has written something.
# shellcheck disable=SC2016 # the inner shell expands it
follow='
    until [ -n "$(ls --almost-all "$1")" ]; do sleep 2; done
    while :; do "$2" agent --spool "$1" --appear 86400; sleep 15; done
'
umask 077 # the log may contain names of runs
(
    set -a
    # shellcheck source=/dev/null
    . "$settings"
    set +a
    cd / && exec setsid nice --adjustment=5 \
        setpriv --reuid "$SLURM_JOB_UID" --regid "$group" --init-groups --no-new-privs \
        bash -c "$follow" rankscope-agent "$spool" "$program"
) </dev/null >"$spools/$SLURM_JOB_ID.log" 2>&1 &
echo "$!" >"$spools/$SLURM_JOB_ID.pid"
# When the prolog ends, slurmd kills its process group. So wait until the agent has a group of its own.
for _ in {1..50}; do
    kill -0 -- "-$!" 2>/dev/null && break
    sleep 0.1
done
exit 0
