"""The service over HTTP: routes, what requests and answers look like, and what stands before them."""
