#!/bin/sh
# GN starts scripts, not programs of PATH.
exec clang "$@"
