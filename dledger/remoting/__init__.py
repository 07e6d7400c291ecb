"""RocketMQ's Remoting protocol without I/O: bytes in, commands out, and back. Pure.

Layout, from the bytes upwards
------------------------------
``framing``          cuts a byte stream into frames
``codec``            makes a `Command` of each, whatever encoding its header has
``rocketmq_header``  the binary encoding
``command``          one request, one-way request or response
``headers``          the typed headers that `Command.ext` flattens
``bodies``           the JSON bodies
``json_dialect``     their two dialects
``record``           stored messages, of which the bodies of sends and pulls consist
``message``          their properties and ids
``codes``            the numbers of requests and answers
``numbers``          how wide a number may be
``names``            names of topics and groups, system topics, permissions
``attributes``       named settings of topics and groups
``allocation``       how queues are shared out
``cron``             moments by the calendar
``receipts``         the handles of popped messages, and of those that wait for their time
``unavailable``      what an answer of code 14 or 2 says besides its remark

Sockets, clocks and tasks are `dledger.net`'s business.
"""
