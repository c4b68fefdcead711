"""Produce the faults that a real broker, network or disk produces only now and then."""

from dataclasses import asdict, dataclass, fields


@dataclass(slots=True, kw_only=True)
class Faults:
    """Say what goes wrong next; counts are used up one by one, switches stay until they are reset.

    Attributes:
        drop_replies: publishes that are stored but never answered.
        refuse_publishes: publishes answered with the fatal error E_PUB_FAILED, which ends their connection.
        duplicate_deliveries: deliveries that are queued once more while the first copy is still in hand.
        repeated_ids: deliveries that are sent twice under one id, counted twice against RDY and released once: what
            nsqd 1.3.0 does with a message that a crash left twice in its queue.
        refuse_connections: hang up on every new connection.
        mute: send nothing at all, not even heartbeats, as a stopped process or a cut network does.
        delay_replies: seconds to wait before a publish is answered.
        delay_deliveries: seconds to wait before a message is sent to its consumer.
    """

    drop_replies: int = 0
    refuse_publishes: int = 0
    duplicate_deliveries: int = 0
    repeated_ids: int = 0
    refuse_connections: bool = False
    mute: bool = False
    delay_replies: float = 0.0
    delay_deliveries: float = 0.0

    def take(self, name: str) -> bool:
        """Use up one of the named count and say whether there was one."""
        left: int = getattr(self, name)
        if left <= 0:
            return False
        setattr(self, name, left - 1)
        return True

    def set(self, **values: float) -> None:
        """Set faults by name.

        Raises:
            KeyError: no fault has that name.
            ValueError: a value is negative or not a number.
        """
        known = {field.name: field.type for field in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise KeyError(name)
            if not isinstance(value, int | float) or value < 0:
                raise ValueError(f"{name} must be a number of at least 0")
            convert = known[name]
            setattr(self, name, convert(value) if callable(convert) else value)

    def reset(self) -> None:
        """Let nothing go wrong any more."""
        self.set(**asdict(Faults()))

    def snapshot(self) -> dict[str, float]:
        """Return the present faults by name."""
        return asdict(self)
