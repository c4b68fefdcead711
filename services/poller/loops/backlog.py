"""Watches what waits at the brokers; pauses polling when it is far too much."""

from poller.domain.backlog import BacklogLimits, ChannelBacklog, judge
from poller.settings import BacklogSettings
from poller.store.redis import RedisRoles
from servicekit.errors import ServiceError
from servicekit.failures import describe
from servicekit.logs import get_logger
from servicekit.metrics import Metric, gauge
from servicekit.nsq import NsqAdmin
from sluicegate_client.messages import CARD_COLLECTION, CARD_INGEST

TOPICS = (CARD_INGEST, CARD_COLLECTION)

_log = get_logger(__name__)


class BacklogWatch:
    """One replica reads the backlog each minute and decides for all.

    Args:
        admin: asks nsqd.
        roles: decides which replica reads, and holds the pause.
        settings: how often, and the limits.
    """

    def __init__(self, admin: NsqAdmin, roles: RedisRoles, settings: BacklogSettings) -> None:
        self._admin = admin
        self._roles = roles
        self._settings = settings
        self._limits = BacklogLimits(settings.alert_depth, settings.pause_depth)

    async def run_once(self) -> None:
        """Read, log one line, and set or end the pause. An unknown backlog changes nothing."""
        if not await self._roles.lead_backlog(self._settings.every * 2):
            return
        try:
            backlogs = await read_backlog(self._admin)
        except ServiceError as error:
            _log.warning("the backlog is unknown", problem=describe(error))
            return
        verdict = judge(backlogs, self._limits)
        counts = {f"{item.topic}/{item.channel or '-'}": item.total for item in backlogs}
        for topic in TOPICS:
            total = sum(item.total for item in backlogs if item.topic == topic)
            gauge(Metric.BACKLOG_MESSAGES).labels(topic=topic).set(total)
        log = _log.error if verdict.alert else _log.info
        log("backlog", deepest=verdict.deepest, topic=verdict.topic, channels=counts)
        if verdict.pause:
            reason = f"{verdict.deepest} messages wait in {verdict.topic}, over {self._limits.pause_depth}"
            await self._roles.pause(reason, self._settings.pause_lease)
            _log.error("polling is paused", reason=reason)
        elif verdict.pause is False:
            if await self._roles.unpause():
                _log.info("polling goes on", deepest=verdict.deepest)
        elif reason := await self._roles.pause_reason():
            await self._roles.pause(reason, self._settings.pause_lease)


async def ingest_backlog(admin: NsqAdmin) -> int | None:
    """Return how many messages wait for ingest_service, in its hands or not; None when nsqd can't be asked."""
    try:
        backlogs = await read_backlog(admin)
    except ServiceError:
        return None
    return sum(item.total for item in backlogs if item.topic == CARD_INGEST)


async def read_backlog(admin: NsqAdmin) -> list[ChannelBacklog]:
    """Return what waits per topic and channel. Raises ServiceError when nsqd can't be asked: unknown is not zero."""
    stats = await admin.stats()
    found: list[ChannelBacklog] = []
    for name in TOPICS:
        topic = stats.get(name)
        if topic is None:
            continue
        if topic.depth or not topic.channels:
            found.append(ChannelBacklog(topic=name, channel="", depth=topic.depth, in_flight=0, deferred=0))
        found += [
            ChannelBacklog(
                topic=name,
                channel=channel.name,
                depth=channel.depth,
                in_flight=channel.in_flight,
                deferred=channel.deferred,
            )
            for channel in topic.channels.values()
        ]
    return found
