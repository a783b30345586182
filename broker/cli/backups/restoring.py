"""Carries out `moldau restore STORE --to DIR`."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from secrets import token_bytes
from typing import Final

from moldau.backup.cluster_image import RestorePlacement
from moldau.backup.manifest import BackupManifest
from moldau.backup.moment import NoBackupForTime, backup_for_time
from moldau.backup.report import RestoreReport, utc_time_text
from moldau.backup.restoring import RestoreRefused, RestoreRequest, RestoreTarget, restore_backup
from moldau.broker.cli.backups.command import BackupCommand
from moldau.broker.cli.daily.failures import EXIT_UNKNOWN, Failure, WrongArguments, check_can_write
from moldau.broker.cli.daily.output import size_text
from moldau.broker.cli.daily.times import time_ms
from moldau.kraft.quorum.voter_set import Address
from moldau.storage.files.local_files import LocalFiles

SINGLE_NODE_ADDRESS: Final = ("127.0.0.1", 9093)
"""The controller's address in the configuration with which `moldau serve` runs a single node without a configuration
file.
"""


async def run_restore(command: BackupCommand) -> int:
    """Restore a backup, and print the report. Returns the exit status."""
    given = command.arguments
    if given.to is None and not given.dry_run:
        raise WrongArguments("say where to: --to names a directory that is empty or does not exist")
    if given.report is not None:
        check_can_write("--report", given.report)
    now_ms = command.now_ms()
    asked_ms = None if given.at is None else time_ms(given.at, "--at", now_ms)
    if asked_ms is not None and asked_ms > now_ms:
        raise WrongArguments(f"--at {given.at}: {utc_time_text(asked_ms)} is in the future")
    placement = _placement(command)
    await command.store.read_cluster_id()
    manifest = await _chosen(command, asked_ms)
    target = None
    if not given.dry_run:
        target = RestoreTarget(LocalFiles(), str(Path(given.to).absolute()), token_bytes)
    request = RestoreRequest(asked_ms, placement)
    try:
        report = await restore_backup(
            command.store.storage,
            manifest,
            request,
            target,
            now_ms,
            lambda done, total: command.progress(f"{size_text(done)} of {size_text(total)}"),
        )
    except RestoreRefused as refusal:
        raise Failure(str(refusal)) from None
    except asyncio.CancelledError:
        command.note("stopped: nothing was restored", "yellow")
        raise
    _show(command, report)
    return 0


def _placement(command: BackupCommand) -> RestorePlacement:
    """Which topics the arguments restore, under which names, and onto which nodes. Raises `WrongArguments`."""
    given = command.arguments
    topics = frozenset(name for names in given.topics for name in names.split(",") if name)
    renames = {}
    for text in given.rename:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise WrongArguments(f"--rename {text}: it is written as OLD=NEW")
        renames[old] = new
    voters = dict(_controller(text) for text in given.controller)
    if given.single_node is not None:
        if given.single_node < 0:
            raise WrongArguments(f"--single-node {given.single_node}: the id of a node is 0 or above")
        if {*voters} - {given.single_node}:
            raise WrongArguments(f"--controller: node {given.single_node} is the only one")
        voters.setdefault(given.single_node, SINGLE_NODE_ADDRESS)
    return RestorePlacement(given.single_node, topics or None, renames, voters)


def _controller(text: str) -> tuple[int, Address]:
    match = re.fullmatch(r"(\d+)@(\[[^\]]+\]|[^:\[\]]+):(\d+)", text)
    if match is None:
        raise WrongArguments(f"--controller {text}: it is written as ID@HOST:PORT")
    return int(match[1]), (match[2].strip("[]"), int(match[3]))


async def _chosen(command: BackupCommand, asked_ms: int | None) -> BackupManifest:
    """The backup that the arguments name, or the one from which the state at `asked_ms` can be restored. Raises
    `Failure`.
    """
    store, given = command.store, command.arguments
    known = await store.backup_ids()
    if not known:
        raise Failure(f"{given.store}: there are no backups here yet", status=EXIT_UNKNOWN)
    if given.backup not in (None, "latest"):
        candidates = [await store.read_manifest(given.backup)]
    elif asked_ms is None:
        return await store.read_manifest(known[-1])
    else:
        candidates = [await store.read_manifest(backup_id) for backup_id in known]
    if asked_ms is None:
        return candidates[0]
    try:
        return backup_for_time(candidates, asked_ms)
    except NoBackupForTime:
        last = candidates[-1]
        raise Failure(
            f"--at {given.at}: {utc_time_text(asked_ms)} is after the backup {last.backup_id}, which has what was"
            f" there until {utc_time_text(last.began_ms)}",
            status=EXIT_UNKNOWN,
        ) from None


def _show(command: BackupCommand, report: RestoreReport) -> None:
    given = command.arguments
    fields = {**report.as_json_fields(), "is_dry_run": given.dry_run, "to": given.to}
    if given.report is not None:
        Path(given.report).write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    command.output.object(fields)
    for line in report.as_sentences():
        command.output.say(line)
    if given.dry_run:
        command.output.say("dry run: nothing was written")
    else:
        command.output.say(f"restored into {given.to}: start each node on its own directory", "green")
