"""The lessons as they are stored and shipped. Their outputs are compared by nbval: `make test`."""
