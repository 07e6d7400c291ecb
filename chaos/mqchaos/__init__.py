"""Breaks clusters on purpose, under load, and has what came of it judged.

``demo``          the main job: `./dev demo`
``mqchaos``       the command of that name: scenarios by name and seed
``mqcluster``     the command of that name: a whole cluster on this machine
``command_line``  what these share
``cluster``       clusters of real processes
``faults``        what can be done to one
``run``           a load, a plan, and a history
``report``        what a run comes to
``limits``        the bounds and paces
"""

from dledger.version import __version__ as __version__
