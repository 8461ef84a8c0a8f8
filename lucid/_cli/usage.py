"""What a user can put right."""


class UsageError(Exception):
    """A request that cannot be met; the message is the one line that the user sees."""
