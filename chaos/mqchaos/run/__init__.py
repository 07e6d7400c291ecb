"""A run: a load, a plan of faults, and a history of all that clients were answered.

``scenarios``  the runs that have a name
``planned``    a run before it is run, as a file
``assigning``  the tasks of its clients (pure)
``perform``    from start to verdict
``run``        one run: a fresh cluster, a load, a plan, a history
``observer``   what the harness itself sees of the cluster
``ordinary``   what must be so in ordinary life
``load``       the clients of a run
``others``     clients that are not ours
``outcome``    what became of one run among many
``again``      replays, and plans made smaller
``shrinking``  which smaller plan to try next (pure)
``soak``       one seed after the other
``covering``   soaks added up
``covered``    what many runs covered, as Markdown (pure)
``display``    progress on the terminal
``machine_speed``  how fast the machine is meanwhile
"""
