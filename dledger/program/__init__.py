"""The parts that all our programs share: config files, settings that tools see, output, exit
status.

``config``    TOML into typed structs, with errors that name the key
``whole``     whole numbers on a command line
``settings``  a config as administration tools see it, and its changes at run time (pure)
``arming``    failpoints of a process, armed by whoever started it
``audit_log``  an audit log on disk, of bounded size
``audit_pages``  its lines in pages, as they are asked for over the network
``console``   standard output whose reader may leave early
``logs``      logging of our own programs: structlog, for people or for programs
``entering``  imports a command, and runs it
``ending``    how a command ends with an error
``cores``     no core dump of a tool, which may hold secrets
``helping``   help in the width of the terminal
``extras``    optional packages: whether they are there, and how to get them
``pulse``     wakes a process's periodic loops at the same moments
"""
