"""What the tools of Debian are asked to do: each function runs one at a place and checks what it did."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.conformance.brokers import Ports
from tests.conformance.others.other import COUNT, Place, given, last_words, said
from tests.conformance.outcome import Failed

SYSLOG = """\
module(load="imfile")
module(load="omkafka")
global(workDirectory="{directory}")
template(name="line" type="string" string="%msg%")
input(type="imfile" File="{directory}/lines" Tag="other" reopenOnTruncate="on" freshStartTail="off")
action(type="omkafka" broker="{bootstrap}" topic="{topic}" template="line")
"""
COLLECTD = """\
BaseDir "{directory}"
PIDFile "{directory}/pid"
Interval 1
LoadPlugin uptime
LoadPlugin write_kafka
<Plugin write_kafka>
  Property "metadata.broker.list" "{bootstrap}"
  <Topic "{topic}">
    Format JSON
    Key "Host"
  </Topic>
</Plugin>
"""

NGINX = """\
load_module modules/ndk_http_module.so;
load_module modules/ngx_http_lua_module.so;
daemon off;
user root;
pid {directory}/pid;
error_log {directory}/daemon.log warn;
events {{}}
http {{
  access_log off;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      content_by_lua_block {{
        local producer = require("nginx.kafka.producer")
        local host, kafka_port = string.match("{bootstrap}", "(.*):(%d+)")
        local one = producer:new({{{{ host = host, port = tonumber(kafka_port) }}}}, {{ producer_type = "sync" }})
        for n = 0, {count} - 1 do
          local offset, problem = one:send("{topic}", "key-" .. n, "value " .. n)
          if not offset then
            ngx.say(problem)
            return
          end
        end
        ngx.say("sent")
      }}
    }}
  }}
}}
"""
ZOOKEEPER = """\
clientPort={port}
admin.enableServer=false
dataDir={directory}/zookeeper
"""
BURROW = """\
[general]
pidfile="{directory}/pid"
[logging]
level="warn"
[zookeeper]
servers=["127.0.0.1:{zookeeper_port}"]
timeout=6
root-path="/burrow"
[client-profile.own]
kafka-version="2.0.0"
[cluster.own]
class-name="kafka"
servers=["{bootstrap}"]
client-profile="own"
topic-refresh=5
offset-refresh=1
[consumer.own]
class-name="kafka"
cluster="own"
servers=["{bootstrap}"]
client-profile="own"
start-latest=false
[httpserver.default]
address="127.0.0.1:{port}"
"""
OPEN_S = 30.0
"""For a server to open its port."""
BURROW_S = 40.0
"""For it to read the offsets of a group."""
TSHARK_S = 4.0
"""For it to begin a capture, and to write down what it has captured."""
GROUP_APIS = {"1", "3", "8", "10", "11", "14", "18"}
"""Fetch, Metadata, OffsetCommit, FindCoordinator, JoinGroup, SyncGroup, ApiVersions."""


def kcat(command: Sequence[str], place: Place) -> None:
    """Records one a line, with keys and headers; then they are consumed in a group."""
    place.create_topic()
    broker = ("-b", place.bootstrap)
    for key, value, header in given(headers=True):
        line = place.directory / "line"
        line.write_text(f"{key}\t{value}")
        said(command, place, *broker, "-P", "-t", place.topic, "-K", "\t", "-H", f"place={header}", "-l", str(line))
    _consumed_by_kcat(command, place)


def _consumed_by_kcat(command: Sequence[str], place: Place) -> None:
    reading = ("-o", "beginning", "-f", "%k\t%s\t%h\n", "-c", str(COUNT), "-q", "-G", place.group, place.topic)
    lines = said(command, place, "-b", place.bootstrap, *reading).splitlines()
    _same(lines, [f"{key}\t{value}\tplace={header}" for key, value, header in given(headers=True)])


def rsyslog(command: Sequence[str], place: Place) -> None:
    place.create_topic()
    lines = [f"line {index}" for index in range(COUNT)]
    (place.directory / "lines").write_text("".join(line + "\n" for line in lines))
    words = ["-n", "-i", str(place.directory / "pid"), "-f", _configured(place, SYSLOG)]
    with _running([*command, *words], place.daemon_log):
        _same(place.values(COUNT), lines)


def collectd(command: Sequence[str], place: Place) -> None:
    place.create_topic()
    with _running([*command, "-f", "-C", _configured(place, COLLECTD)], place.daemon_log):
        plugins = [json.loads(value)[0]["plugin"] for value in place.values(2)]
    if plugins != ["uptime", "uptime"]:
        raise Failed(f"the topic has values of {plugins}")


def nginx(command: Sequence[str], place: Place) -> None:
    """A page of nginx sends records from Lua."""
    place.create_topic()
    port = Ports().pair()
    with _running([*command, "-c", _configured(place, NGINX, port=port, count=COUNT)], place.daemon_log):
        _opened(port)
        if (answer := _page(f"http://127.0.0.1:{port}/").strip()) != "sent":
            raise Failed(answer)
        _same(place.values(COUNT), [value for _, value, _ in given(headers=False)])


def burrow(command: Sequence[str], place: Place) -> None:
    """Asks for the lag of a group that has read all but the last records, which it takes from `__consumer_offsets`."""
    place.create_topic()
    place.produce(given(headers=True))
    _consumed_by_kcat(["kcat"], place)
    place.produce(given(headers=True))
    ports = Ports()
    port, zookeeper_port = ports.pair(), ports.pair()
    java = ["java", "-cp", "/usr/share/java/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
    _configured(place, BURROW, "burrow.toml", port=port, zookeeper_port=zookeeper_port)
    with _running([*java, _configured(place, ZOOKEEPER, port=zookeeper_port)], Path(os.devnull)):
        _opened(zookeeper_port, b"srvr")
        time.sleep(5.0)  # its first session is slow, and Burrow asks once
        with _running([*command, "-config-dir", str(place.directory)], place.daemon_log):
            _opened(port)
            deadline = time.monotonic() + BURROW_S
            while time.monotonic() < deadline:
                told = json.loads(_page(f"http://127.0.0.1:{port}/v3/kafka/own/consumer/{place.group}/lag"))
                if told.get("status", {}).get("totallag") == COUNT:
                    return
                time.sleep(1.0)
            raise Failed(f"after {BURROW_S:g} s the group has no lag of {COUNT}")


def tshark(command: Sequence[str], place: Place) -> None:
    """Captures a group of kcat on the loopback interface, and dissects it: kcat speaks versions that tshark knows."""
    place.create_topic()
    place.produce(given(headers=True))
    port, capture = place.bootstrap.rpartition(":")[2], place.directory / "capture.pcapng"
    taking = [*command, "-q", "-i", "lo", "-f", f"tcp port {port}", "-w", str(capture)]
    with _running(taking, place.daemon_log):
        time.sleep(TSHARK_S)
        _consumed_by_kcat(["kcat"], place)
        time.sleep(TSHARK_S)
    read = ("-r", str(capture), "-d", f"tcp.port=={port},kafka", "-T", "fields", "-e", "kafka.api_key", "-Y")
    if len(frames := said(command, place, *read, "kafka").splitlines()) < 2 * len(GROUP_APIS):
        raise Failed(f"the capture has {len(frames)} frames of Kafka")
    if missing := GROUP_APIS - set(",".join(frames).split(",")):  # a frame may have several messages
        raise Failed(f"no frames of the APIs {missing}")
    if malformed := said(command, place, *read, "_ws.malformed").splitlines():
        raise Failed(f"of {len(frames)} frames {len(malformed)} are malformed, of the APIs {sorted(set(malformed))}")


def _same(found: Sequence[str], wanted: Sequence[str]) -> None:
    if sorted(found) != sorted(wanted):
        raise Failed(f"{len(found)} records, which are not the {len(wanted)} that were produced: {found[:2]}")


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[None]:
    """A process that is stopped at the end; a failure has the last words of its log."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield
    except Failed as failed:
        raise Failed(f"{failed}; {last_words(log)}" if log.stat().st_size else str(failed)) from None
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _configured(place: Place, text: str, name: str = "configuration", **more: int) -> str:
    """The path of a configuration file with this text."""
    path = place.directory / name
    path.write_text(text.format(directory=place.directory, bootstrap=place.bootstrap, topic=place.topic, **more))
    return str(path)


def _opened(port: int, question: bytes = b"") -> None:
    """Waits until something listens there, and answers the question if there is one."""
    deadline = time.monotonic() + OPEN_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
            connection.sendall(question)
            if not question or connection.recv(1):
                return
        time.sleep(0.2)
    raise Failed(f"nothing answers on port {port} after {OPEN_S:g} s")


def _page(url: str) -> str:
    """What a server answers, whatever the status."""
    try:
        with urlopen(url, timeout=30.0) as answer:
            return str(answer.read().decode())
    except HTTPError as refused:
        return refused.read().decode()
