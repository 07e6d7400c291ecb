#!/bin/sh
# A cluster of ours, and a hooks file for it, to be hurt like one that somebody else started.
#
#     sh ours.sh DIR [CLIENT]      # CLIENT: a folder with a stock client's jars and the driver Steady
#     mqchaos attach -n 127.0.0.1:PORT --hooks DIR/hooks.toml --times 20 --dir NEW-DIR
#     mqcluster down --dir DIR --remove
set -eu
dir=$1
client=${2:-}
mqcluster up --dir "$dir" --nodes 3
namesrv=$(mqcluster status --dir "$dir" -o json | sed -n 's/.*"namesrv_addr": "\(.*\)".*/\1/p')
{
    echo 'broker = "broker-a"'
    for node in n0 n1 n2; do
        name="broker-a-$node"
        address=$(mqcluster status --dir "$dir" -o json | grep -A 2 "\"$name\"" |
            sed -n 's/.*"address": "\(.*\)".*/\1/p')
        pid="grep -A 1 '\"$name\": {' $dir/cluster.json | grep -o '[0-9]*' | tail -n 1"
        echo "[nodes.$node]"
        echo "address = \"$address\""
        echo "faults.kill.inject = '''kill -9 \$($pid)'''"
        echo "faults.kill.heal = '''mqcluster restart $name --dir $dir'''"
    done
    if [ -n "$client" ]; then
        echo "[workload]"
        echo "command = '''java -Xmx256m -XX:+UseSerialGC -Duser.home=$client -cp" \
            "$client/classes:$client/lib/* Steady $namesrv stock Attached 2 1 1000'''"
    fi
} > "$dir/hooks.toml"
echo "mqchaos attach -n $namesrv --hooks $dir/hooks.toml --times 20 --dir NEW-DIR"
