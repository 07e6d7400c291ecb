"""RocketMQ's Remoting protocol without I/O: bytes in, commands out, and back.

Layer by layer: `framing` cuts a byte stream into frames; `codec` makes a `Command` of each,
whatever encoding its header has; `headers` are the typed headers that `Command.ext` flattens,
`bodies` the JSON bodies, `record` the stored messages that bodies of sends and pulls consist of,
`message` their properties and ids; `codes` are the numbers, `allocation` the rules by which queues
are shared out. Sockets, clocks and tasks are `dledger.net`'s business.
"""
