"""Faults inside our processes: at named places of our code (`dledger.failpoints`).

``orders``     what a broker is told to do, and what it says that it did
``places``     a node ends or is held at a place
``provoking``  what makes a node come by a place
``disks``      a disk that is slow, full, failing, or read-only, as our process sees it
``clocks``     a wall clock that jumps
"""
