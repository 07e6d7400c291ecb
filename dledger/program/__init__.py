"""What every program of ours has: a config file, settings that tools see, a console, an end.

``config``    TOML into typed structs, with errors that name the key
``settings``  a config as administration tools see it, and changes of it at run time (pure)
``console``   standard output whose reader may leave early
``ending``    how a command says that it can't go on
``extras``    optional packages: whether they are there, and how to get them
``pulse``     when loops look around: all of a process at the same moments
"""
