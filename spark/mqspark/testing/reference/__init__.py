"""A second judge: slow, in plain Python, one short function a property, and obviously right.

It reads the same files as the audit and judges runs small enough for nested loops: no digest, no
shuffle, no suspects, no shortcut of any kind. The two share how a record is decoded, and not a line
of how it is judged; on random runs with random faults they must find the same.

Only sound bytes are judged: damage, which is found byte by byte and not by comparing, is left out.
What is found is a tuple: (property, what, message or None, replica or None, queue or None,
offset or None), with None for what the audit chooses among equals.

``inputs``    what there is to judge
``messages``  what is stored, and where
``groups``    what groups of consumers are answered, and given
``acts``      what tools have set
``batches``   batches that are stored whole
``lives``     each life of a topic as queues of its own
``derived``   files that a broker makes from its log, unit by unit; judged by themselves
"""

from __future__ import annotations

from mqspark.testing.reference.acts import JUDGES as ACTS
from mqspark.testing.reference.batches import JUDGES as BATCHES
from mqspark.testing.reference.groups import JUDGES as GROUPS
from mqspark.testing.reference.inputs import APART, Finding, Inputs
from mqspark.testing.reference.lives import in_lives
from mqspark.testing.reference.messages import JUDGES as MESSAGES

__all__ = ["Finding", "Inputs", "findings"]


def findings(inputs: Inputs) -> set[Finding]:
    """Findings in all properties of a run."""
    lived = in_lives(inputs)
    found = {finding for judge in (*MESSAGES, *GROUPS) for finding in judge(lived)}
    found |= {finding for judge in (*ACTS, *BATCHES) for finding in judge(inputs)}
    return {_of_topic(finding) for finding in found}


def _of_topic(finding: Finding) -> Finding:
    """The finding with the queue's own number."""
    number, what, message_id, replica, queue_id, offset = finding
    own = None if queue_id is None else queue_id % APART
    return number, what, message_id, replica, own, offset
