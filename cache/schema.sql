-- schema.sql: the tables of every fatune file: tuning.db, kernels.db, system layers, exports.
-- One schema for all; tuning.db leaves `kernels` empty and kernels.db leaves `trials` empty.
-- This file is for people and tools; schema.c embeds the same statements (a test compares them).
--
-- Version log (PRAGMA user_version):
--   1  first version

CREATE TABLE trials (
  id INTEGER PRIMARY KEY,
  identity BLOB NOT NULL UNIQUE, -- digest of text
  bucket TEXT NOT NULL,          -- from here to templates: copies out of text, to search by
  class TEXT NOT NULL,           -- kernel class of the bucket
  device TEXT NOT NULL,
  target TEXT NOT NULL,
  policy TEXT NOT NULL,
  outcome TEXT NOT NULL,
  at INTEGER NOT NULL,
  templates BLOB NOT NULL,
  text TEXT NOT NULL             -- the trial in its text form; the only part that is read back
);
CREATE INDEX trials_by_bucket ON trials (bucket, device, outcome);
CREATE INDEX trials_by_class ON trials (class, target, outcome, bucket, device, policy);
CREATE TABLE kernels (
  id INTEGER PRIMARY KEY,        -- rising: the newest kernel of a source has the greatest
  key BLOB NOT NULL UNIQUE,
  source BLOB NOT NULL,
  target TEXT NOT NULL,
  used INTEGER NOT NULL,         -- seconds since 1970, renewed hourly at most: the oldest goes first
  identity BLOB NOT NULL,        -- digest of text and log; text holds the digest of image
  text TEXT NOT NULL,            -- the kernel in its text form
  log TEXT,
  image BLOB NOT NULL            -- last: the columns before it are read without touching it
);
CREATE INDEX kernels_by_source ON kernels (source);
PRAGMA application_id = 1178686549;
PRAGMA user_version = 1;
