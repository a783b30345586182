"""Carries out `moldau capture FILE`: takes a window of some topics into one file."""

from __future__ import annotations

import argparse
import asyncio
import secrets
from pathlib import Path

from moldau.backup.capture.changes import MASK_KEY_SIZE, MaskFunctions
from moldau.backup.capture.packed import CaptureTooLarge, ZipStore
from moldau.backup.capture.taking import CaptureResult, CaptureRules, CaptureShell, NothingToCapture, take_capture
from moldau.backup.store import BackupStore
from moldau.broker.cli.backups.command import BackupCommand, failures, positive
from moldau.broker.cli.backups.taking import source_of
from moldau.broker.cli.daily.failures import EXIT_UNKNOWN, Failure, WrongArguments
from moldau.broker.cli.daily.output import Output, size_text
from moldau.broker.cli.daily.times import time_ms
from moldau.broker.cli.invocation import Invocation
from moldau.broker.reasons.words import count_with_noun
from moldau.storage.log_config import INT64_MAX


def run_command(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Carry out `moldau capture`: write the capture file. Returns the exit status. Raises `CommandError`."""
    path, size_max = Path(arguments.file), positive("--max-bytes", arguments.max_bytes)
    assert size_max is not None
    try:
        with failures(arguments.file), ZipStore.create_new(path, size_max) as store:
            output = Output(invocation.out, is_json=arguments.json)
            command = BackupCommand(arguments, invocation, BackupStore(store), output)
            captured, unused = asyncio.run(_capture(command))
            size = store.finish()
    except CaptureTooLarge as problem:
        raise Failure(f"{problem}: take a shorter time, fewer topics, --sample or --max-bytes") from None
    except NothingToCapture as problem:
        raise Failure(str(problem), status=EXIT_UNKNOWN) from None
    finally:
        invocation.errors.erase()
    _show(command, captured, unused, size)
    return 0


async def _capture(command: BackupCommand) -> tuple[CaptureResult, list[str]]:
    """Take the capture. Returns its result, and the masks that have changed nothing."""
    source = await asyncio.to_thread(source_of, command)
    changes = MaskFunctions(_mask_key(command.arguments.mask_key))
    rules = _rules(command.arguments, changes, command.now_ms())
    shell = CaptureShell(
        command.now_ms,
        asyncio.to_thread,
        lambda read, taken: command.progress(f"{size_text(read)} read, {size_text(taken)} captured"),
    )
    captured = await take_capture(command.store, source, rules, shell)
    return captured, [text for text in rules.mask_texts if text not in changes.used_rules]


def _rules(given: argparse.Namespace, changes: MaskFunctions, now_ms: int) -> CaptureRules:
    begin = -1 if given.begin is None else time_ms(given.begin, "--from", now_ms)
    end = INT64_MAX if given.end is None else time_ms(given.end, "--to", now_ms)
    if begin >= end:
        raise WrongArguments(f"--from {given.begin} is not before --to {given.end}")
    if not 0 < given.sample <= 1:
        raise WrongArguments(f"--sample {given.sample:g} is not a share of the keys, above 0 and at most 1")
    try:
        masks = tuple(changes.parse_rule(text) for text in given.mask)
    except ValueError as problem:
        raise WrongArguments(f"--mask {problem}") from None
    return CaptureRules(
        topics=given.topic, from_ms=begin, to_ms=end, sample_ratio=given.sample, masks=masks, mask_texts=given.mask
    )


def _mask_key(file: str | None) -> bytes:
    if file is None:
        return secrets.token_bytes(MASK_KEY_SIZE)
    try:
        key = Path(file).read_bytes()
    except OSError as problem:
        raise WrongArguments(f"--mask-key {file} cannot be read: {problem.strerror}") from None
    if len(key) < MASK_KEY_SIZE:
        raise WrongArguments(
            f"--mask-key {file} has {count_with_noun(len(key), 'byte')}: it needs {MASK_KEY_SIZE} random ones"
        )
    return key


def _show(command: BackupCommand, captured: CaptureResult, unused: list[str], size: int) -> None:
    given, manifest = command.arguments, captured.manifest
    topics = [topic.name for topic in manifest.topics if not topic.name.startswith("__")]
    command.output.object(
        {
            "file": given.file,
            "size": size,
            "topics": topics,
            "records": captured.record_count,
            "positions": captured.position_count,
            "commits": captured.commit_count,
            "unused_masks": unused,
        }
    )
    for text in unused:
        command.note(f"--mask {text} has changed nothing: no captured record has what it names", "yellow")
    command.output.say(
        f"{given.file}: {size_text(size)}; {count_with_noun(captured.record_count, 'record')} of"
        f" {count_with_noun(len(topics), 'topic')}, {count_with_noun(captured.position_count, 'position')} of groups"
    )
