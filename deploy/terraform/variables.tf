variable "project" {
  description = "Id of an existing project with billing."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project must be a project id, such as my-project: not its name, and not its number."
  }
}

variable "region" {
  description = "Region of Cloud Run and Memorystore."
  type        = string
  default     = "us-central1"
}

variable "database_location" {
  description = "Location of the database. It cannot be changed later."
  type        = string
  default     = "nam5"
}

variable "name" {
  description = "Name of the topic, the subscription and the database, and the prefix of all other names."
  type        = string
  default     = "countmill"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,17}[a-z0-9]$", var.name))
    error_message = "name must have 4 to 19 characters: a letter, then letters, digits and hyphens, with no hyphen at the end."
  }
}

variable "image" {
  description = "Image of deploy/Dockerfile in Artifact Registry, with a tag or a digest."
  type        = string

  validation {
    condition     = can(regex("[^/]:[A-Za-z0-9_][A-Za-z0-9_.-]*$|@sha256:[0-9a-f]{64}$", var.image))
    error_message = "image must end with a tag or a digest. Without one nobody knows which version runs."
  }
}

variable "tokens_file" {
  description = "File of tokens, as countmill token new makes it. It has hashes, no tokens."
  type        = string

  validation {
    condition     = trimspace(file(var.tokens_file)) != ""
    error_message = "tokens_file must have a token: a file without tokens admits nobody."
  }
}

variable "invokers" {
  description = "Members that Google lets call publisher and reader, such as serviceAccount:web@my-project.iam.gserviceaccount.com. [\"allUsers\"] leaves the decision to countmill's tokens."
  type        = set(string)
  default     = []
}

variable "aggregators" {
  description = "Number of aggregators. All of them run all the time."
  type        = number
  default     = 2

  validation {
    condition     = var.aggregators >= 1 && floor(var.aggregators) == var.aggregators
    error_message = "aggregators must be 1 or more: without one nothing is counted, and nobody knows the lag."
  }
}

variable "indexers" {
  description = "Number of workers that build, check and delete indexes. All of them run all the time. 0: none; an index then stays building, and its groups answer 409."
  type        = number
  default     = 1

  validation {
    condition     = var.indexers >= 0 && floor(var.indexers) == var.indexers
    error_message = "indexers must be 0 or more."
  }
}

variable "publishers" {
  description = "Fewest and most instances of the publisher. With min 0 the first request after a pause waits for a start."
  type        = object({ min = number, max = number })
  default     = { min = 0, max = 10 }

  validation {
    condition     = var.publishers.min >= 0 && var.publishers.max >= 1 && var.publishers.min <= var.publishers.max
    error_message = "publishers must have min from 0 to max, and max from 1."
  }
}

variable "readers" {
  description = "Fewest and most instances of the reader."
  type        = object({ min = number, max = number })
  default     = { min = 0, max = 10 }

  validation {
    condition     = var.readers.min >= 0 && var.readers.max >= 1 && var.readers.min <= var.readers.max
    error_message = "readers must have min from 0 to max, and max from 1."
  }
}

variable "memory" {
  description = "Memory of an instance of each role. The defaults are those of the Helm chart."
  type        = object({ publisher = string, aggregator = string, reader = string, indexer = string })
  default     = { publisher = "4Gi", aggregator = "2Gi", reader = "1Gi", indexer = "1Gi" }
}

variable "reader_changes" {
  description = "Let readers change counters, rules and indexes, and give values of sequences: their account may then write to the database."
  type        = bool
  default     = false
}

variable "first_start" {
  description = "Start the aggregators with --create, which writes the record that identifies the database. Only for the first apply."
  type        = bool
  default     = false
}

variable "protected" {
  description = "Keep topics, subscriptions and the database from being destroyed. With false, destroy removes them with every increment and total in them."
  type        = bool
  default     = true
}

variable "cache_mb" {
  description = "Memory of one Memorystore node for memcached, in MiB. 0: none, each reader keeps totals of its own. Google ends this product on 2029-01-31."
  type        = number
  default     = 0

  validation {
    condition     = var.cache_mb == 0 || var.cache_mb >= 1024
    error_message = "cache_mb must be 0, or 1024 or more."
  }
}

variable "cache_subnet" {
  description = "Addresses of the subnetwork from which readers reach the cache: a /26 or larger. Not used without a cache."
  type        = string
  default     = "10.80.0.0/26"

  validation {
    condition     = can(cidrhost(var.cache_subnet, 63))
    error_message = "cache_subnet must be a network of 64 addresses or more, such as 10.80.0.0/26."
  }
}

variable "billing_account" {
  description = "Billing account for a budget alert, such as 012345-6789AB-CDEF01. null: no alert."
  type        = string
  default     = null

  validation {
    condition     = var.billing_account == null || can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.billing_account))
    error_message = "billing_account must have the form 012345-6789AB-CDEF01."
  }
}

variable "monthly_budget" {
  description = "Amount for a month of the whole project, in the currency of the billing account. Google's mails come at 50 %, 90 % and 100 %. It stops nothing."
  type        = number
  default     = 100

  validation {
    condition     = var.monthly_budget >= 1 && floor(var.monthly_budget) == var.monthly_budget
    error_message = "monthly_budget must be a whole number from 1."
  }
}
