"""Scenarios of Raft as text: commands, and the messages that each node then sends.

A file holds prose, commands, and their results. A line that begins with ``>`` is a command; an
indented line is a node's, written by this module; anything else is for people. Playing a file gives
its text again, with the nodes' lines as they are now:

    > n0 appends coffee
        0.00  n0: log ends with 3 of term 1
        0.00  n0 -> n1  APPEND term 1: entry 3 of term 1, after 2 of term 1; committed 2

Times are virtual seconds. A message that is equal to the last one of its kind between the same
nodes is left out, since heartbeats would hide all others. The command

    python -m dledger.testing.scripted.transcript tests/data/transcripts/*.txt

writes the files anew: look at the difference before you keep it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from dledger.errors import DledgerError
from dledger.raft.appends import Appended
from dledger.raft.library.adapter import use_clock
from dledger.raft.membership.configuration import Member
from dledger.raft.messages import PeerKind, PeerMessage
from dledger.testing.scripted.group import ScriptedGroup
from dledger.testing.scripted.telling import facts_of, tell
from dledger.world import steady_s


class Script:
    """A group, the commands that move it, and what was written down."""

    def __init__(self) -> None:
        self.group = ScriptedGroup(())
        self._lines: list[str] = []
        self._began_at = 0.0
        self._known: dict[str, dict[str, str]] = {}
        self._said: dict[tuple[str, str, PeerKind], str] = {}

    def command(self, text: str) -> list[str]:
        """Do what a line says; the lines of what came of it. Raises ValueError."""
        for pattern, act in COMMANDS:
            found = re.fullmatch(pattern, text)
            if found is not None:
                act(self, *found.groups())
                if self.group.nodes:
                    self.group.settle()
                lines, self._lines = self._lines, []
                return lines
        raise ValueError(f"no command reads {text!r}")

    # -- what is written down --------------------------------------------------------------

    def note(self, text: str) -> None:
        """Write a line of the transcript, at the scenario's time in seconds."""
        self._lines.append(f"    {self.group.now - self._began_at:5.2f}  {text}")

    def _message(self, sender: str, receiver: str, message: PeerMessage) -> None:
        text, key = tell(message), (sender, receiver, message.kind)
        if self._said.get(key) != text:
            self._said[key] = text
            self.note(f"{sender} -> {receiver}  {text}")

    def _step(self, node_id: str) -> None:
        facts = facts_of(self.group.nodes[node_id])
        usual = {"members": facts["members"], "head": "log begins with 1"}
        known = self._known.get(node_id, usual)
        news = [text for name, text in facts.items() if known.get(name) != text and text]
        self._known[node_id] = facts
        if news:
            self.note(f"{node_id}: {'; '.join(news)}")

    def _outcome(self, node_id: str, what: str) -> Callable[[object], None]:
        def on_done(outcome: object) -> None:
            if isinstance(outcome, Appended):
                self.note(f"{node_id}: {what} is entry {outcome.index} of term {outcome.term}")
            elif isinstance(outcome, DledgerError):
                self.note(f"{node_id}: {what}: {type(outcome).__name__}, {outcome}")
            elif isinstance(outcome, int):
                self.note(f"{node_id}: {what} of all up to {outcome}")
            else:
                self.note(f"{node_id}: {what} {outcome}")

        return on_done

    def _try(self, node_id: str, what: str, operation: Callable[[], object]) -> None:
        try:
            operation()
        except DledgerError as error:
            self._outcome(node_id, what)(error)

    # -- commands --------------------------------------------------------------------------

    def new_group(self, names: str) -> None:
        """Nodes with empty disks start."""
        node_ids = names.split()
        self.group = group = ScriptedGroup(node_ids)
        group.on_message, group.on_step = self._message, self._step
        group.on_cut = lambda node_id, first, last: self.note(f"{node_id}: cuts {first} to {last}")
        group.on_repaired = lambda node_id, index: self.note(f"{node_id}: repaired up to {index}")
        for node_id in node_ids:
            group.start(node_id)

    def led_group(self, names: str, leader: str) -> None:
        """Nodes with empty disks start, and a first leader serves; both in few lines."""
        self.new_group(names)
        self.group.elect(leader)
        self.group.wait(0.45)
        self._lines, self._began_at = [], self.group.now
        self._said.clear()
        self.show()

    def start(self, node_id: str) -> None:
        """A node starts on its disk."""
        self._known.pop(node_id, None)
        self.group.start(node_id)
        if node_id in self.group.repairing:
            question = self.group.repairing[node_id].wanted_index
            self.note(f"{node_id}: entry {question} is damaged; takes no part")

    def kill(self, node_id: str, how: str) -> None:
        """A node's process or machine dies."""
        self.group.kill(node_id, power=how == "loses power")

    def wait(self, seconds: str) -> None:
        """Pass so many seconds of virtual time."""
        self.group.wait(float(seconds))

    def wait_until_served(self, node_id: str) -> None:
        """Pass virtual time until a node serves."""
        self.group.wait_until(lambda: self.group.serves(node_id))

    def append(self, node_id: str, word: str) -> None:
        """A client appends a word."""
        node, on_done = self.group.nodes[node_id], self._outcome(node_id, word)
        self._try(node_id, word, lambda: node.engine.append(word.encode(), 16, on_done))

    def append_many(self, node_id: str, count: str, size: str) -> None:
        """A client appends entries that are all alike, and hears nothing of them."""
        for _ in range(int(count)):
            self.group.append(node_id, bytes(int(size)))

    def read(self, node_id: str) -> None:
        """A client wants to know how far the log goes."""
        node, on_done = self.group.nodes[node_id], self._outcome(node_id, "read")
        self._try(node_id, "read", lambda: node.engine.read(on_done))

    def transfer(self, node_id: str, target: str) -> None:
        """Transfer leadership from a node to `target`, as an operator would; the outcome is
        noted."""
        engine = self.group.nodes[node_id].engine
        what = f"handing over to {target}"
        ended = self._outcome(node_id, what)
        self._try(
            node_id, what, lambda: engine.transfer(target, lambda why: ended(why or "is done"))
        )

    def give_room(self, node_id: str, how: str) -> None:
        """A node can take no messages, or can again."""
        engine = self.group.nodes[node_id].engine
        engine.refusal = "its disk is full" if how == "no room" else None
        engine.urgent = True

    def add(self, node_id: str, newcomer: str) -> None:
        """An operator adds a member."""
        engine, what = self.group.nodes[node_id].engine, f"adding {newcomer}"
        member, on_done = Member("host", 1), self._outcome(node_id, what)
        self._try(node_id, what, lambda: engine.add_member(newcomer, member, on_done))

    def remove(self, node_id: str, member: str) -> None:
        """An operator removes a member."""
        engine, what = self.group.nodes[node_id].engine, f"removing {member}"
        on_done = self._outcome(node_id, what)
        self._try(node_id, what, lambda: engine.remove_member(member, on_done))

    def hush(self, names: str, others: str, how: str) -> None:
        """Messages from some nodes to others are held back, and perhaps those of the others,
        too."""
        for name in names.split():
            for other in others.split():
                self.group.hush(name, other)
                if how == "each other":
                    self.group.hush(other, name)

    def trim(self, node_id: str, index: str) -> None:
        """Retention removes old segments, which the saved state makes up for."""
        self.group.save_state(node_id)
        job = self.group.nodes[node_id].log.trim(int(index))
        assert job is not None, "nothing to trim"
        job.run()

    def show(self) -> None:
        """Each node's log: the terms of its entries, in order."""
        self.group.settle()
        for node_id, node in sorted(self.group.nodes.items()):
            self._known[node_id] = facts_of(node)
            serving = " and serves" if node.engine.standing.serving else ""
            terms = " ".join(map(str, node.terms))
            first = node.log.first_index
            begins = f" from entry {first}" if first > 1 else ""
            facts = self._known[node_id]
            self.note(
                f"{node_id} {facts['role']}{serving}; {facts['commit']}; terms{begins}: {terms}"
            )


NODE = r"(n\d)"
NODES = r"(n\d(?: n\d)*)"
COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    (rf"a new group: {NODES}", Script.new_group),
    (rf"a group: {NODES}, led by {NODE}", Script.led_group),
    (rf"{NODE} starts", Script.start),
    (rf"{NODE} (is killed|loses power)", Script.kill),
    (rf"{NODE} gets an empty disk", lambda script, node_id: script.group.empty(node_id)),
    (
        rf"entry (\d+) rots on the disk of {NODE}",
        lambda script, index, node_id: script.group.damage(node_id, int(index)),
    ),
    (r"(\d+(?:\.\d+)?) s pass", Script.wait),
    (rf"wait until {NODE} serves", Script.wait_until_served),
    (rf"{NODE} appends ([a-z]\w*)", Script.append),
    (rf"{NODE} appends (\d+) entries of (\d+) bytes", Script.append_many),
    (rf"{NODE} reads", Script.read),
    (rf"{NODE} hands over to {NODE}", Script.transfer),
    (rf"{NODE} has (no room|room)", Script.give_room),
    (rf"{NODE} adds {NODE}", Script.add),
    (rf"{NODE} removes {NODE}", Script.remove),
    (rf"{NODES} and {NODES} do not hear (each other)", Script.hush),
    (rf"what {NODES} says? to {NODES} is held back()", Script.hush),
    (
        rf"of what {NODE} said to {NODE} the next (\d+) arrives?",
        lambda script, sender, to, count: script.group.let_through(sender, to, int(count)),
    ),
    (r"everybody hears everybody", lambda script: script.group.heal()),
    (rf"the disk of {NODE} hangs", lambda script, node_id: script.group.hanging.add(node_id)),
    (
        rf"the disk of {NODE} goes on",
        lambda script, node_id: script.group.hanging.discard(node_id),
    ),
    (rf"{NODE} saves its state", lambda script, node_id: script.group.save_state(node_id)),
    (rf"{NODE} drops what lies before entry (\d+)", Script.trim),
    (r"show", Script.show),
)


def play(text: str) -> str:
    """A file's text with what the nodes say now. Raises ValueError for an unknown command."""
    script, lines = Script(), list[str]()
    try:
        for line in text.splitlines():
            if line.startswith("    "):
                continue
            lines.append(line)
            if line.startswith("> "):
                lines += script.command(line[2:])
    finally:
        use_clock(steady_s)
    return "\n".join(lines) + "\n"


def main(paths: list[str]) -> None:
    """Play the scenarios in these files, and write their transcripts anew."""
    for path in map(Path, paths):
        path.write_text(play(path.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
