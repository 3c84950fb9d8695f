"""A real multi-node Kubernetes on one Linux machine, without a container daemon.

What belongs here: building Kubernetes from pinned Go modules, starting and stopping clusters whose
nodes are network namespaces, and building the container images that run on them. It imports only
the standard library, so it works before a virtual environment exists.

Apart from the image names, nothing here knows about DLedger.
"""
