#!/bin/bash
# Epilog of Slurm, run by slurmd as root on each node after a job: ends the agent that prolog.sh started, sends what it had
# not sent yet, and deletes the spool of the job if everything is stored. docs/guides/slurm.md explains it.
#
# Without a collector it waits for RANKSCOPE_EPILOG_S seconds. The node takes no other job meanwhile. It then keeps the spool
# and prints the command that sends it. It always ends with status 0: an epilog that fails drains the node.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
settings=${RANKSCOPE_AGENT_ENV:-/etc/rankscope/agent.env}
spools=${RANKSCOPE_SPOOLS:-/var/spool/rankscope-jobs}
program=${RANKSCOPE_PROGRAM:-/opt/rankscope/bin/rankscope}
patience_s=${RANKSCOPE_EPILOG_S:-30}
spool=$spools/$SLURM_JOB_ID
log=$spools/$SLURM_JOB_ID.log
pid_file=$spools/$SLURM_JOB_ID.pid

if [ -f "$pid_file" ]; then
    group=$(cat "$pid_file") # the loop and its agent, which has a last round
    # Only processes of the user: another process group may have this number now.
    pkill -TERM --pgroup "$group" --uid "$SLURM_JOB_UID"
    for _ in {1..50}; do
        pgrep --pgroup "$group" --uid "$SLURM_JOB_UID" >/dev/null || break
        sleep 0.2
    done
    pkill -KILL --pgroup "$group" --uid "$SLURM_JOB_UID"
    rm --force "$pid_file"
fi
[ -d "$spool" ] || exit 0

send() {
    set -a
    # shellcheck source=/dev/null
    . "$settings"
    set +a
    cd / && exec timeout --signal TERM --kill-after 10 "$((patience_s + 30))" \
        setpriv --reuid "$SLURM_JOB_UID" --regid "$(id --group "$SLURM_JOB_UID")" --init-groups --no-new-privs \
        "$program" agent --spool "$spool" --appear 1 --patience "$patience_s"
}

if [ -z "$(ls --almost-all "$spool")" ] || (send) </dev/null >>"$log" 2>&1; then
    rm --recursive --force "$spool" "$log"
else
    echo "rankscope epilog: records of job $SLURM_JOB_ID are not stored yet, see $log. To send them, as root:" \
        "(set -a; . $settings; setpriv --reuid $SLURM_JOB_UID --regid $(id --group "$SLURM_JOB_UID") --clear-groups" \
        "$program agent --spool $spool)" >&2
fi
exit 0
