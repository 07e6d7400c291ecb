"""The clients of a run: what they send and read, each a process of its own.

``workload``    the tasks of clients, and what they report (pure)
``workers``     the harness's side of them: rows of processes
``process``     one process of a row
``work``        what the process does
``forking``     a program that makes its client first, and forks then
``producing``   what producers send, and note
``popping``     members of a group that pops
``priorities``  which priorities, and when nobody reads (pure)
``tools``       what tools change meanwhile
``noting``      what is noted of a message
"""
