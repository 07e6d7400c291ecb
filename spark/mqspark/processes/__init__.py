"""The processes of an audit: Java, Spark's Python workers, and the end of both by Ctrl-C.

``classes``       keeps the classes that Java has loaded, for a quicker start
``daemon``        forks Spark's Python workers
``worker``        the process in which Spark runs tasks
``interrupting``  ends an audit by Ctrl-C
"""
