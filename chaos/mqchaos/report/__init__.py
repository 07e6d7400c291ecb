"""The results of a run, for people and for programs.

``judge``    runs the audit, as a separate process
``verdict``  what the audit found
``measure``  the times in a history (pure)
``report``   the verdict and the times together
``chart``    the timeline's chart (pure)
``page``     one HTML page
``soaked``   a soak on one page (pure)
``display``  progress on the terminal
"""
