"""
An object store that knows users, roles and their policies, and refuses strangers.

It does not limit a session by the policy that is sent with it. So that policy can be given to a role of its own, and
the store is asked what such a role may do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import boto3
import httpx
from pyarrow.fs import S3FileSystem

from tests.services.objects import KEY, ObjectStore

KEYS = ("s3.access-key-id", "s3.secret-access-key")


class GuardedStore:
    """An object store that refuses strangers, with the keys of a warehouse and a role."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, self.endpoint = store, store.settings["s3.endpoint"]
        self._iam = self._client("iam", KEY, KEY)
        self._iam.create_user(UserName="warehouse")
        key = self._iam.create_access_key(UserName="warehouse")["AccessKey"]
        self.settings = {**store.settings, KEYS[0]: key["AccessKeyId"], KEYS[1]: key["SecretAccessKey"]}
        everything = _policy(Action=["s3:*", "sts:*"], Resource="*")
        self._iam.put_user_policy(UserName="warehouse", PolicyName="all", PolicyDocument=everything)
        self.role = self.trusted(everything)
        self.bucket = store.bucket
        self._guard(0)

    def trusted(self, policy: str, principal: str = "*") -> str:
        """Make a role that may do what a policy says, for some principal."""
        trust, name = _policy(Action="sts:AssumeRole", Principal={"AWS": principal}), uuid4().hex
        arn: str = self._iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        self._iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=policy)
        return arn

    def untrusted(self) -> str:
        """Make a role that nobody here may take."""
        with self._opened():
            return self.trusted(_policy(Action="s3:*", Resource="*"), "arn:aws:iam::999999999999:root")

    def may(self, policy: Any, place: str) -> str:
        """Return what a role with a policy may do in a folder."""
        with self._opened():
            role, path = self.trusted(json.dumps(policy)), place.removeprefix("s3://")
            with S3FileSystem(access_key=KEY, secret_key=KEY, **self._reached).open_output_stream(f"{path}/a") as file:
                file.write(b"")
        sts = self._client("sts", *(self.settings[each] for each in KEYS))
        session = sts.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
        files = S3FileSystem(
            access_key=session["AccessKeyId"],
            secret_key=session["SecretAccessKey"],
            session_token=session["SessionToken"],
            **self._reached,
        )
        done = {"read": lambda: files.open_input_stream(f"{path}/a"), "write": lambda: self._written(files, path)}
        return " ".join(name for name, act in done.items() if _succeeds(act))

    def _written(self, files: S3FileSystem, path: str) -> None:
        with files.open_output_stream(f"{path}/b") as file:
            file.write(b"")

    @property
    def _reached(self) -> Mapping[str, str]:
        return {"region": "us-east-1", "endpoint_override": self.endpoint}

    @contextmanager
    def _opened(self) -> Iterator[None]:
        self._guard(float("inf"))
        yield
        self._guard(0)

    def _guard(self, after: float) -> None:
        httpx.post(f"{self.endpoint}/moto-api/reset-auth", content=str(after).encode()).raise_for_status()

    def _client(self, service: str, key: str, secret: str) -> Any:
        keys = {"aws_access_key_id": key, "aws_secret_access_key": secret}
        return boto3.client(service, endpoint_url=self.endpoint, region_name="us-east-1", **keys)


def _policy(**said: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **said}]})


def _succeeds(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return False
    return True
