"""check_release: the pre-traffic hook of deployments. A version that is not well gets no traffic."""
