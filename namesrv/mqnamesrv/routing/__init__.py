"""The route table, and what goes into it: decisions alone, without sockets or files.

``routes``        groups, members, and who leads (pure)
``groups``        groups and members, and which registrations are refused (pure)
``topics``        which groups serve a topic (pure)
``registration``  reads a broker's registration (pure)
"""
