"""A machine that has had nothing but Debian's packages, in namespaces of Linux, for the lines of docs/deployment.md."""
