create table if not exists txsaga_database (
  id integer primary key check (id = 1),
  uuid char(32) not null
);
create table if not exists txsaga_evidence (
  store char(32) not null,
  incarnation integer not null,
  txid bigint not null,
  branch varchar(64) not null,
  outcome smallint not null check (outcome in (1, 2)),
  body blob,
  at timestamp not null default current_timestamp,
  primary key (store, incarnation, txid, branch)
);
insert or ignore into txsaga_database (id, uuid) values (1, lower(hex(randomblob(16))));
create table if not exists txsaga_inbox (
  grp varchar(127) not null,
  message varchar(160) not null,
  at timestamp not null default current_timestamp,
  primary key (grp, message)
);
create index if not exists txsaga_inbox_at on txsaga_inbox (at);
