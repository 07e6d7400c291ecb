"""Who may do what, and who can listen.

``users``       createUser, updateUser, deleteUser, getUser, listUser
``rights``      createAcl and its like, aclExplain, aclSuggest
``encryption``  tls
``audit``       auditLog
"""
