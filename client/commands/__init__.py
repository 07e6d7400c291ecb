"""`mqadmin`: the commands that RocketMQ users type, as tables for people and JSON for programs.

`__main__` lists the commands, each module here holds a few of them; `common` has the options and
the way of running that all share, `output` the two forms of printing.
"""
