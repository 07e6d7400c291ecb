"""`mqadmin`: the commands that RocketMQ users type, as tables for people and JSON for programs.

`mqadmin` lists the commands, each module here holds a few of them.

``mqadmin``     the list of commands, and the handling of their errors
``topics``      topics, and who serves them
``groups``      consumer groups, how far they are, and what they gave up
``clients``     who is connected, and what they say of themselves
``brokers``     the brokers and their figures
``raft``        members, roles, and who leads
``members``     adding and removing nodes
``access``      users, what each may do, and how ports are encrypted
``settings``    configs, key-value entries, write permissions, cleaning
``statistics``  traffic and rates
``messages``    sending and printing messages
``queries``     finding messages
``doctor``      what is wrong, and archives for others to look at
``replica``     checking and copying replicas
``terminal``    what they share: options, output, points in time
"""
