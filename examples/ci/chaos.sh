#!/bin/sh
# Five minutes of random faults against the installed version, on any CI that runs a shell.
# Exit status 0: everything held; 1: a violation, whose run lies in chaos-soak/seed-N; 2: not run.
#
#     pip install 'dledger[spark]' && sh chaos.sh [FIRST_SEED]
#
# Each build should have seeds of its own, so that builds go on where the last one ended.
set -eu
seed=${1:-$(date +%s)}
echo "first seed: $seed"
exec mqchaos soak --hours 0.0833 --duration 30 --seed "$seed" --dir chaos-soak
