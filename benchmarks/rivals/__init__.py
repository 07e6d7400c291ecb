"""Parts of `benchmarks/peers`: replicated logs of others beside ours, and their clients.

``systems``     starts a system's servers, finds its leader, kills and restarts it
``drivers``     builds the programs that load a system by one of its clients, and runs them
``rows``        which client does which work with which system (pure)
``page``        the section of the docs, from a kept result (pure)
``plot``        a bar chart as SVG (pure)
``timing``      how they time sends
``bare``        what is left if nothing is done with a message: the floor
``drive_*``     the programs: `ADDRESS TOPIC WORK SIZE_BYTES SECONDS COUNT` in, one line of JSON out

A program hands over messages for SECONDS and waits until all are acknowledged; what it did before
(connecting, a warm-up) is not counted. A work is one of:

``pipelined``   as many outstanding as the client allows
``batches``     batches of 64 messages, a few of them under way
``many``        thousands of bodies in one call (ours)
``single``      one outstanding
``paced``       10,000 a second
``read``        from the first message on, COUNT of them
``gaps``        one outstanding, tried again until it succeeds; prints `WHEN LONGEST-GAP` twenty
                times a second, by the machine's monotonic clock, until its input is closed
"""
