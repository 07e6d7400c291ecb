"""The state as bytes: what a restart begins with, and what another replica is given.

``saving``    saves the state, copies it, and restores it
``snapshot``  the file, and the state's fields
"""
