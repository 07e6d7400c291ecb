"""The parts that all commands share.

``options``  their options, and how they run
``output``   the two forms of printing
``times``    points in time
``curves``   a server's history, drawn (pure)
"""
