"""`mqadmin`: the commands that RocketMQ users type, as tables for people and JSON for programs.

`__main__` lists the commands, each module here holds a few of them.

``entry``       where `mqadmin` begins
``topics``      updateTopic, deleteTopic, topicList, topicRoute, topicStatus
``groups``      consumerProgress, updateSubGroup, deleteSubGroup, setConsumeMode
``clients``     consumerConnection, producerConnection, consumerStatus, resetOffsetByTime
``brokers``     clusterList, brokerStatus
``raft``        raftStatus, transferLeader
``members``     addNode, removeNode
``access``      createUser, createAcl, aclExplain, tls and their like
``settings``    configs, key-value entries, write permissions, cleaning
``statistics``  statsAll
``messages``    sendMessage, consumeMessage, printMsg
``queries``     queryMsgById, queryMsgByKey, queryMsgByUniqueKey, queryMsgByOffset
``replica``     verifyLog, exportReplica
``terminal``    what they share: options, output, points in time
"""
