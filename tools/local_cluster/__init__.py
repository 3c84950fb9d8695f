"""A real multi-node Kubernetes on one Linux machine, without a container daemon.

Belongs here: building Kubernetes from pinned Go modules, starting and stopping clusters of
network-namespaced nodes, and building the container images that run on them. Only the standard
library is imported, so that it runs before any virtual environment exists.

Does not belong here: anything that knows what DLedger is, apart from the image names.
"""
