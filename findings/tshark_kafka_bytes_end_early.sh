#!/usr/bin/env bash
# tshark 4.0.17 (Debian 12), seen 2026-11-30: its dissector of Kafka shows a field of the type BYTES as missing, and reads
# on four bytes before its end. A JoinGroup request of version 5 with the protocols `range` and `roundrobin`, as librdkafka
# 2.0.2 sends it and brokers take it, is shown with a second protocol without a name, whose metadata is the text
# "roundrobin", and the frame counts as malformed. SyncGroup, whose assignments are BYTES, is shown likewise.
#   names: range,
#   metadata: <MISSING>,726f756e64726f62696e
#   expert: Dissected message does not end at the pdu length offset
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
version=4.0.17-0+deb12u3
for package in tshark wireshark-common libwireshark16 libwiretap13 libwsutil14; do
    apt-get download -qq "$package=$version" 2>/dev/null || exit 2
done
for file in *.deb; do dpkg-deb -x "$file" root; done
export LD_LIBRARY_PATH=$home/root/usr/lib/x86_64-linux-gnu HOME=$home
"root/usr/bin/tshark" --version >/dev/null 2>&1 || exit 2 # a library that it needs is not installed

python3 - >frame <<'PYTHON'
from struct import pack


def string(text):
    return pack(">h", len(text)) + text


def protocol(name):  # a subscription of version 1: one topic, no user data, no owned partitions
    metadata = pack(">hi", 1, 1) + string(b"t1") + pack(">ii", 0, 0)
    return string(name) + pack(">i", len(metadata)) + metadata


header = pack(">hhi", 11, 5, 1) + string(b"client")
group = string(b"g1") + pack(">ii", 45_000, 300_000) + string(b"") + pack(">h", -1) + string(b"consumer")
message = header + group + pack(">i", 2) + protocol(b"range") + protocol(b"roundrobin")
print("000000", (pack(">i", len(message)) + message).hex(" "))
PYTHON
root/usr/bin/text2pcap -q -T 40000,9092 frame frame.pcap
shown() { root/usr/bin/tshark -r frame.pcap -d tcp.port==9092,kafka -T fields -e "$1" 2>/dev/null; }
seen="names: $(shown kafka.protocol_name)
metadata: $(shown kafka.protocol_metadata)
expert: $(shown _ws.expert.message)"
echo "$seen"
test "$seen" = "names: range,
metadata: <MISSING>,726f756e64726f62696e
expert: Dissected message does not end at the pdu length offset"
