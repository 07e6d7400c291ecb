"""Breaks clusters on purpose, under load, and has the results audited.

``demo``          the main job: `./dev demo`
``mqchaos``       the command of that name: scenarios by name and seed
``listing``       the tables of what `mqchaos` can do
``entry``         where the commands `mqchaos` and `mqcluster` begin
``mqcluster``     the command of that name: a whole cluster on this machine
``command_line``  what the commands share
``attach``        faults in clusters that others started
``cluster``       clusters of real processes
``network``       links between its servers and clients that can be broken
``faults``        the faults that are injected
``run``           a load, a plan, and a history
``history``       what clients were answered and what the harness did, event by event
``report``        the results of a run
``limits``        the bounds and paces
"""

from dledger.version import __version__ as __version__
