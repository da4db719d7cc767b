create table if not exists txsaga_database (
  id smallint not null primary key check (id = 1),
  uuid char(32) character set ascii collate ascii_bin not null
) engine=InnoDB;
create table if not exists txsaga_evidence (
  store char(32) character set ascii collate ascii_bin not null,
  incarnation integer not null,
  txid bigint not null,
  branch varchar(64) character set ascii collate ascii_bin not null,
  outcome smallint not null check (outcome in (1, 2)),
  body longblob,
  at timestamp(6) not null default current_timestamp(6),
  primary key (store, incarnation, txid, branch)
) engine=InnoDB;
insert ignore into txsaga_database (id, uuid) values (1, replace(uuid(), '-', ''));
create table if not exists txsaga_inbox (
  grp varchar(127) character set utf8mb4 collate utf8mb4_bin not null,
  message varchar(160) character set ascii collate ascii_bin not null,
  at timestamp(6) not null default current_timestamp(6),
  primary key (grp, message),
  key txsaga_inbox_at (at)
) engine=InnoDB;
