"""Commands about rights, users and encryption.

``users``       createUser, updateUser, deleteUser, getUser, listUser
``rights``      createAcl and its like, aclExplain, aclSuggest
``encryption``  tls
``audit``       auditLog
"""
