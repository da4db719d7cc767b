"""
Credentials for the files of a table in an object store, for clients without keys of their own.

Keys of the operator open all that the warehouse's own keys open: only who may write a table gets them. A session is
limited to the files of one table, and to reading for a client that may do no more.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from txsaga.catalog.refusals import CatalogRefusal
from txsaga.errors import ConfigError

logger = logging.getLogger("txsaga")
SCHEMES = ("s3://", "s3a://", "s3n://")
READ = ("s3:GetObject", "s3:GetObjectVersion")
WRITE = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
LIFETIME = 3600
"""Seconds for which a session is good; one is handed out again during the first half of them."""
REMEMBERED = 10_000
"""Sessions that are kept."""
KEYS = ("access-key-id", "secret-access-key", "session-token")
EXPIRES = "s3.session-token-expires-at-ms"
REACHED_BY = ("s3.endpoint", "s3.path-style-access", "s3.force-virtual-addressing")


class FileAccess(NamedTuple):
    """What a client may do with the files of a table."""

    client: str
    places: tuple[str, ...]
    writes: bool


class Credentials(Protocol):
    """Knows the credentials for files."""

    def config(self, access: FileAccess) -> dict[str, str]:
        """Return the settings of a client's storage; nothing if it gets no credentials."""


def chosen(said: str, properties: Mapping[str, str]) -> Credentials | None:
    """Return the credentials that an operator chose for clients, with the settings of the warehouse's storage."""
    if said == "none":
        return None
    store = ObjectStoreAccess(properties)
    if said == "static":
        return StaticKeys(store)
    if re.fullmatch(r"arn:[\w-]+:iam::\w*:role/\S+", said) is None:
        raise ConfigError(f"--credentials is {said!r}; write none, static or the ARN of a role")
    return RoleSessions(said, store)


class ObjectStoreAccess:
    """How this process reaches the object store of the warehouse."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        said = {name: properties.get(f"s3.{name}") or properties.get(f"client.{name}") for name in (*KEYS, "region")}
        by_environment = {name: os.environ.get(f"AWS_{name.replace('-', '_').upper()}") for name in KEYS}
        self.keys = {name: said[name] for name in KEYS} if said[KEYS[0]] else by_environment
        self.region = said["region"] or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self.endpoint = properties.get("s3.endpoint")
        self._reached_by = {name: properties.get(name) for name in REACHED_BY}

    def config(self, keys: Mapping[str, str | None]) -> dict[str, str]:
        """Return the settings of a client with some keys."""
        said = {f"s3.{name}": value for name, value in keys.items()}
        return {k: v for k, v in {**said, **self._reached_by, "client.region": self.region}.items() if v}


class StaticKeys:
    """The keys of the warehouse itself, for clients that may write."""

    def __init__(self, store: ObjectStoreAccess) -> None:
        if not store.keys[KEYS[0]]:
            raise ConfigError("--credentials static hands out AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; set them")
        self._config = store.config(store.keys)

    def config(self, access: FileAccess) -> dict[str, str]:
        """Return the keys, to a writer."""
        return self._config if access.writes else {}


class RoleSessions:
    """Sessions of a role, each with a policy for the files of one table."""

    def __init__(self, role: str, store: ObjectStoreAccess) -> None:
        try:
            import boto3
        except ImportError as missing:
            raise ConfigError(f"sessions need a package ({missing}); pip install 'txsaga[s3]'") from missing
        self._role, self._store = role, store
        self._kept: dict[FileAccess, tuple[float, dict[str, str]]] = {}
        self._sts = boto3.client(
            "sts",
            region_name=store.region or "us-east-1",
            endpoint_url=None if "AWS_ENDPOINT_URL_STS" in os.environ else store.endpoint,
            **{f"aws_{name.replace('-', '_')}": value for name, value in store.keys.items()},
        )

    def config(self, access: FileAccess) -> dict[str, str]:
        """Return a session that is good for at least half of its lifetime."""
        ends, config = self._kept.get(access, (0.0, {}))
        if ends - time.time() < LIFETIME / 2:
            ends, config = self._begun(access)
            if len(self._kept) > REMEMBERED:
                self._kept.clear()
            self._kept[access] = ends, config
        return config

    def _begun(self, access: FileAccess) -> tuple[float, dict[str, str]]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            session: Mapping[str, Any] = self._sts.assume_role(
                RoleArn=self._role,
                RoleSessionName=re.sub(r"[^\w+=,.@-]", "-", f"{access.client}@txsaga", flags=re.ASCII)[-64:],
                Policy=json.dumps(policy(access, self._role.split(":")[1]), separators=(",", ":")),
                DurationSeconds=LIFETIME,
            )["Credentials"]
        except (BotoCoreError, ClientError) as error:
            logger.warning("there is no session of %s for client %s: %s", self._role, access.client, error)
            line = "there are no credentials for the files now; the log of the server has the reason"
            raise CatalogRefusal(503, "ServiceUnavailableException", line) from error
        values = (session["AccessKeyId"], session["SecretAccessKey"], session["SessionToken"])
        ends = session["Expiration"].timestamp()
        return ends, {**self._store.config(dict(zip(KEYS, values, strict=True))), EXPIRES: str(int(ends * 1000))}


def policy(access: FileAccess, partition: str) -> dict[str, Any]:
    """Return what a session may do: with the files of a table, and with nothing else."""
    found = [_escaped(each.split("://", 1)[1].rstrip("/")).partition("/") for each in access.places]
    arn = f"arn:{partition if partition.startswith('aws') else 'aws'}:s3:::"
    files = [f"{arn}{bucket}{slash}{path}/*" for bucket, slash, path in found]
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": [*READ, *(WRITE if access.writes else ())], "Resource": files}
    ]
    for bucket in sorted({bucket for bucket, _, _ in found}):
        below = [f"{path}/*" for each, _, path in found if each == bucket]
        among = {"StringLike": {"s3:prefix": below}}
        statements += [
            {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [f"{arn}{bucket}"], "Condition": among},
            {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": [f"{arn}{bucket}"]},
        ]
    return {"Version": "2012-10-17", "Statement": statements}


def _escaped(path: str) -> str:
    return re.sub(r"[*?$]", r"${\g<0>}", path)  # a policy would read them as patterns
