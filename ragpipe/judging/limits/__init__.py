"""When a request may be sent, and sent again: rate limit, retries, outages, circuit breaker."""
