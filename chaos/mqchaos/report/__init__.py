"""The results of a run, for people and for programs.

``judge``    runs the audit, as a separate process
``measure``  the times in a history (pure)
``pauses``   how long sends paused at each fault (pure)
``slots``    counts and latencies over time (pure)
``verdict``  report.json as data
``report``   the verdict and the times together
``drawing``  what all drawings share (pure)
``chart``    the timeline's chart (pure)
``strips``   how long failovers took, as a distribution (pure)
``page``     one HTML page
``soaked``   a soak on one page (pure)
"""
